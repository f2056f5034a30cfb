#!/bin/sh
# Reviews a small agent from its files alone, with nothing run or imported, and then makes two calls of another agent,
# one that is allowed and one that is not. No network is needed.
set -eu

CDPATH='' cd -- "$(dirname -- "$0")/weather"
command -v licet >/dev/null || {
    echo "licet is not on PATH; \`make demo\` sets everything up" >&2
    exit 2
}

bold='' dim='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    esc=$(printf '\033')
    bold="${esc}[1m" dim="${esc}[2m" plain="${esc}[0m"
fi

# show CODE CAPTION WORD...: run `licet WORD...`, which must end with CODE.
show() {
    expected=$1 caption=$2 code=0
    shift 2
    printf '\n%s%s%s\n%s$ licet %s%s\n' "$bold" "$caption" "$plain" "$dim" "$*" "$plain"
    licet "$@" 2>&1 || code=$?
    if [ "$code" -ne "$expected" ]; then
        echo "demo: expected exit code $expected, found $code" >&2
        exit 1
    fi
}

pictures=$(mktemp -d "${TMPDIR:-/tmp}/licet-demo.XXXXXX")
export XDG_STATE_HOME="$pictures/state"

show 0 "Does the policy have errors, or does a tool declare more than its agent is allowed?" \
    check research.yaml research-next.yaml
show 0 "May this tool fetch this URL, and which rules allow it?" \
    explain research.yaml fetch_weather https://api.weather.gov/points/oslo
show 1 "And another one? The refusal names every reason, and the change that would remove it." \
    explain research.yaml fetch_weather https://api.stripe.com/v1/charges
show 0 "Everything that this agent can reach." \
    surface research.yaml --workdir /srv/agent
show 0 "The same as a picture." \
    surface research.yaml --workdir /srv/agent --svg "$pictures/research.svg"
show 1 "Somebody proposes a new version. What grew?" \
    diff research.yaml research-next.yaml --workdir /srv/agent

cd ../desk
show 0 "Now a tool runs: a ready-made one, which reaches what this agent's manifest allows." \
    call desk.yaml search_files path=notes pattern=rain ignore_case=true
show 1 "The same agent tries to read a note that is denied." \
    call desk.yaml read_file path=notes/private/safe.md

printf '\n%sThe picture is in %s%s\n' "$bold" "$pictures/research.svg" "$plain"
