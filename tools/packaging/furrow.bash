# Completion in bash for furrowctl, furrowd and furrow-bench: of commands and flags, as their --help
# lists them. What is a file, also behind emu:, bash completes by itself.
_furrow() {
  local words=() word help from=1
  [[ $COMP_CWORD -eq 1 || ${COMP_WORDS[1]} != help ]] || from=2
  for word in "${COMP_WORDS[@]:from:COMP_CWORD-from}"; do
    [[ $word == [a-z]* && ${#words[@]} -lt 2 ]] || break
    words+=("$word")
  done
  help=$("$1" "${words[@]}" --help 2>/dev/null) || return 0
  if [[ $2 == -* ]]; then
    help=$(sed -nE 's/^  (--[a-z_]+=?).*/\1/p' <<<"$help")
  elif [[ $COMP_CWORD -ne from+${#words[@]} ]]; then
    return 0  # behind a flag or an argument there is no command's name
  else
    help=$(awk -v at=$((${#words[@]} + 2)) '/^  furrow/ && !seen[$at]++ { print $at }' <<<"$help")
  fi
  mapfile -t COMPREPLY < <(compgen -W "$help" -- "$2")
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null
}
complete -o default -F _furrow furrowctl furrowd furrow-bench
