"""`anyvisor completion SHELL`: a script that completes commands, options and the names of VMs."""

import argparse
import importlib
from typing import Final

from anyvisor.cli.main import COMMANDS, module_of

SHELLS: Final = ("bash", "zsh", "fish")
EXAMPLES: Final = """examples:
  source <(anyvisor completion bash)
  anyvisor completion zsh > "${fpath[1]}/_anyvisor"
  anyvisor completion fish > ~/.config/fish/completions/anyvisor.fish"""
_NAMES: Final = "anyvisor list -A -o name 2>/dev/null | sed s,.*/,,"


def configure(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell]
    print(made(), end="")
    return 0


def options(command: str) -> tuple[list[str], bool]:
    """The long options of a command, and whether it takes a VM's name."""
    module = importlib.import_module(f"anyvisor.cli.{module_of(command)}")
    if not hasattr(module, "configure"):
        return [], False
    parser = argparse.ArgumentParser(prog=f"anyvisor {command}")
    module.configure(parser)
    actions = parser._actions  # pyright: ignore[reportPrivateUsage]
    found = [word for action in actions for word in action.option_strings if word.startswith("--")]
    return found, any("VM" in str(action.metavar) for action in actions if not action.option_strings)


def _bash() -> str:
    cases: list[str] = []
    for command in COMMANDS:
        words, names = options(command)
        vms = f" $({_NAMES})" if names else ""
        cases.append(f'    {command}) words="{" ".join(words)}{vms}" ;;')
    lines = "\n".join(cases)
    return f"""_anyvisor() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} command= word words
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in -*) ;; *) command=$word; break ;; esac
  done
  case $command in
    '') words="--data-dir --help --version {" ".join(COMMANDS)}" ;;
{lines}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _anyvisor anyvisor
"""


def _zsh() -> str:
    return f"#compdef anyvisor\nautoload -U +X bashcompinit && bashcompinit\n{_bash()}"


def _fish() -> str:
    lines = ["complete -c anyvisor -f"]
    for command, text in COMMANDS.items():
        told = text.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"complete -c anyvisor -n __fish_use_subcommand -a {command} -d '{told}'")
        words, names = options(command)
        seen = f"-n '__fish_seen_subcommand_from {command}'"
        lines += [f"complete -c anyvisor {seen} -l {word.removeprefix('--')}" for word in words]
        if names:
            lines.append(f"complete -c anyvisor {seen} -a '({_NAMES})'")
    return "\n".join(lines) + "\n"
