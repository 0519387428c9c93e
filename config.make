# Flags for the objects of this module alone; nginx's own are left alone.
#
# -O3: nginx compiles with -O or what the distribution says, the scan wants
# more.  Hidden: names of a .so that are not hidden can be taken by another
# module's, or take its.

llm_capture_opt=-O3

if [ "$llm_capture_link" = DYNAMIC ]; then
    llm_capture_opt="$llm_capture_opt -fvisibility=hidden"
fi

echo >> $NGX_MAKEFILE

for llm_capture_src in $llm_capture_srcs; do
    llm_capture_obj=`dirname $llm_capture_src`
    llm_capture_obj=addon/`basename $llm_capture_obj`
    llm_capture_obj=$llm_capture_obj/`basename $llm_capture_src .c`.o

    echo "$NGX_OBJS/$llm_capture_obj: CFLAGS += $llm_capture_opt" \
        >> $NGX_MAKEFILE
done
