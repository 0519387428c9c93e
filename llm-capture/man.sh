#!/bin/sh

# The manual page of one command, out of the page of all and of its --help:
#
#     llm-capture/man.sh PROGRAM PAGE COMMAND

set -eu

"$1" "$3" --help | awk -v command="$3" '
    NR == FNR && /^[.]Dd / {
        date = $0
    }

    NR == FNR && /^[.]It Ic / {
        within = $3 == command
        nested = 0

        if (within) {
            synopsis = $0
            sub("^[.]It Ic [a-z-]+", "." , synopsis)
            sub("^[.] +", ".", synopsis)
            next
        }
    }

    NR == FNR && within && /^[.]El/ && nested-- == 0 {
        within = 0
    }

    NR == FNR {
        nested += within && /^[.]Bl/
        text = text (within ? $0 "\n" : "")
        next
    }

    FNR == 3 {
        print ".\\\" Copyright (C) the llm-capture authors\n" date
        print ".Dt LLM-CAPTURE-" toupper(command) " 1\n.Os\n.Sh NAME"
        print ".Nm llm-capture-" command "\n.Nd " $0
        print ".Sh SYNOPSIS\n.Nm llm-capture " command
        print ".Op Ar option ...\n" synopsis
        printf ".Sh DESCRIPTION\n%s.Sh OPTIONS\n.Bl -tag -width Ds\n", text
    }

    /^  --/ {
        value = /^  --[a-z-]+ [^ ]/ ? $2 : ""
        said = $0
        sub("^  --[a-z-]+ +", "", said)
        said = substr(said, length(value) + 1)
        sub("^ +", "", said)
        print ".It Fl " substr($1, 2) (value == "" ? "" : " Ar " value)
        print said
    }

    END {
        print ".El\n.Sh SEE ALSO\n.Xr llm-capture 1"
    }
' "$2" -
