# . misc/sources.sh pure|glue: the names that `config` lists
sed -n "/^llm_capture_$1=/,/\"\$/p" config | tr -d '"\\' \
    | sed 's/^llm_capture_[a-z]*=//' | tr -s ' \n' ' '
