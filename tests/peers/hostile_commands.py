"""Random command lines that try to change something while they look like reading; the same seed gives the same ones."""

from __future__ import annotations

import shlex
import string
from random import Random

_PROGRAMS_TEXT = """
sort uniq cut head tail wc grep sed awk find xxd od base64 diff cmp comm join paste column stat file du ls nl fold fmt tar
gzip tac rev expand shuf md5sum strings cat tr seq dirname realpath iconv numfmt tree hexdump ps date basename jq
"""
_LONG_OPTIONS_TEXT = """
--output --output=out --out=out --files0-from=a --compress-program=./p --in-place --in-place=.x --file=a --expression=p
--null --zero --count --unique --reverse --key=1 --lines=1 --check --recursive --include=a --to-command=x --remove-files
--append
"""
_VALUES = ["1", "x", "a", "out", "w out", "s/a/b/w out", "{print}", '{print > "out"}', "-", "5p", "b", "1e touch out"]
# In these two `_` is a blank and `%` a line break.
_AWK_TEXT = """
print printf_ "f" / " ) ( ; { } >_ >> | "touch_out" system("touch_out") % , 1 x $1 if_(1)_ ! ~ # \\ exit_
"touch_out"_|_getline /"/ /a/ "x" BEGIN_ ++ -- in_ x[1] = length_ function_g()_ g() return_ && getline_y_<_"a" /[/"]/
/[[:alpha:]/"]/ case_ switch_(x) /[a-z]/ NR NF $NF == _>_3 /2 ~_/x/ (1) printf_"%s",$1 END_ delete_x next_ ? : ||
substr($1,1) gsub(/x/,"y")
"""
_SED_TEXT = """
s/a/b/ p w_out e_touch_out 1 $ /x/ ! { } ; % s / a b g i\\ a\\ c y/x/z/ # r_a = , q l h \\ [ ] | I M s|x|y| w e t b_a :a n ~2 +1
s/x/y/w_out s/x/y/e 0 x D N a_text a_text\\ a_text\\\\ s/[/]/y/ s/[[:alpha:]/]/y/ b_#x ba} $!N P;D /a/,/b/ 2d 1i_x
"""
_WORDS_TEXT = """
a b v v/c * v/* ? out -fprint -o -delete -exec "$x" $x "${x:--fprint}" "${x:-a}" "${x}" '' "" -- -n -r . .. {a,b} "a b" ~
$HOME "$(cat_a)" <(cat_a) -i --output=out s "$PWD" "$1" x=1 -name 5 "$y" ${y:-b} $((1+2)) @ -e -c 127.0.0.1:x link/../a
"""
# Places for commands and words; `_` is a blank, `%` a line break in the second.
_WORD_PLACES_TEXT = """
x a*_b $(C) `C` <(C) >(C) "$(C)" 'C' "C" $'C' ${x:-W} ${x:+W} ${x-W} ${y:=W} ${x#W} ${x%%W} ${x/W/b} ${x/a/W} ${x//W} ${x^W}
"${x:-W}" "${x#W}" ${a[W]} ${x:W} $((W)) aW {W,b} ~W W"W" 'a'W'b' ${x:-"W"} ${x:-'W'} ${x:-{W}} ${x:-\\}W} ${x:-${y:-W}} \\W
\\'C $'\\'C'
"""
_COMMAND_PLACES_TEXT = """
echo_W cat_<<E%W%E cat_<<'E'%W%E cat_<<\\E%W%E cat_<<<_W ls_<_W x=W x=W_ls a=(W) a[W]=1 export_x=W [_-n_W_] [_W_=_a_] [[_W_]]
[[_-n_W_]] [[_a_==_W_]] [[_a_=~_W_]] [[_W_-eq_1_]] [[_-v_W_]] [[_a_&&_W_]] case_W_in_x)_ls;;_esac case_x_in_W)_ls;;_esac
case_x_in_x)_C;;_esac for_i_in_W;_do_ls;_done for_i_in_a;_do_C;_done for_((i=W;i<1;i++));_do_ls;_done ((W)) if_C;_then_ls;_fi
if_ls;_then_C;_fi while_C;_do_break;_done C_&&_ls ls_&&_C false_||_C ls;_C ls_&_C ls_|_C {_ls;_C;_} (ls;_C) !_C time_C eval_Q
bash_-c_Q sh_-c_Q printf_W printf_%%s_W read_W echo_W_#_C #_C% ls_#_C%C echo_'C' echo_"C" echo_a_|_xargs_C
find_._-maxdepth_0_-exec_C_\\; find_._-maxdepth_0_-exec_sh_-c_Q_\\; timeout_5_C env_C nice_C command_C exec_C trap_Q_EXIT
alias_ls=Q%ls declare_x=W unset_W type_W ls_<(C) ls_>_>(C) $(C) cat_<<E;_C%x%E cat_<<E%x%E%C git_log_W
"""
_PROGRAMS = _PROGRAMS_TEXT.split()
_LONG_OPTIONS = _LONG_OPTIONS_TEXT.split()
_AWK = _AWK_TEXT.split()
_SED = _SED_TEXT.split()
_WORDS = _WORDS_TEXT.split()
_WORD_PLACES = [text.replace("_", " ") for text in _WORD_PLACES_TEXT.split()]
_COMMAND_PLACES = [
    text.replace("_", " ").replace("%%", "\0").replace("%", "\n").replace("\0", "%")
    for text in _COMMAND_PLACES_TEXT.split()
]
_SIMPLE = (
    """
cat_W;cat_W_W;head_W;wc_-l_W;find_v_W_W;find_W_-name_W;find_W_-type_f;sort_W_W;uniq_W_W;grep_-r_x_W;grep_x_W;echo_W_W;xargs_cat_W_<_a
find_v_|_xargs_cat;find_v_-print0_|_xargs_-0_W_W;find_v_-exec_cat_{}_+;find_v_-exec_W_{}_W_\\;;ls_|_xargs_-n1_W;git_log_W;git_status_W
git_diff_W_W;git_-C_W_status;git_show_HEAD:a;read_x_<<<_W;command_read_x_<<<_W;x=W;y=W;x=v;x=a;y=-fprint;x+=W;unset_x;cd_W;cd_v
"cd"_..;command_cd_..;cd_-P_link;touch_out;/usr/bin/touch_out;printf_-v_x_W;printf_W_W;export_x=W;tee_W;date_W;ps_W;[_W_];[[_W_]]
[[_W_==_W_]];test_W_-a_W;[_-f_W_];env_W_cat_a;env_x=W_cat_a;tar_tf_W;tar_tfv_W;tar_-tf_a;W_a;$x_W;ls_W;stat_W;awk_1_W;sed_p_W;sed_-n_W_a
cat_<_W;cat_>_/dev/null_W;echo_W_>_W;set_-e;set_--_W;exit_0;exit_W_2;shift;local_x=W;trap_W_EXIT;./p;jq_W_a;diff_W_W;true;false;:
hash_-p_./p_cat;alias_cat=touch;source_W;._./p;mapfile_x_<_a;wait_-p_x;cat_/dev/tcp/127.0.0.1/PORT;cat_<_/dev/tcp/127.0.0.1/PORT;basename_W
""".strip()
    .replace("\n", ";")
    .split(";")
)
_SHAPES = (
    """
{0};_{1}|{0}_&&_{1}|{0}_||_{1}|{0}_PIPE_{1}|for_x_in_W_W;_do_{0};_{1};_done|for_x_in_v;_do_{0};_{1};_done|while_read_x;_do_{0};_{1};_done_<_a
if_{0};_then_{1};_fi|(_{0};_{1}_)|{{_{0};_{1};_}}|!_{0}_&&_{1}|f()_{{_{0};_}};_f;_{1}|touch()_{{_:;_}};_{1}|case_a_in_W)_{0};;_*)_{1};;_esac
echo_"$({0};_{1})"|x=v;_{0};_{1}|{0}_&_{1}|false_&&_{0};_{1}|x=a;_{0};_cat_"$x"|cd_v_&&_{0};_{1}|select_x_in_v;_do_{0};_done_<_a;_{1}
""".strip()
    .replace("\n", "|")
    .split("|")
)
_WRAPPERS = ["timeout 1 ", "command ", "env ", "nice ", "nohup ", "x=W "]
_SCRIPT_WRAPPERS = ["bash -c ", "eval ", "sh -c "]


class HostileCommands:
    """A source of command lines. What they could change is called `out`, or lies in the folder they run in."""

    def __init__(self, seed: int, port: int = 9) -> None:
        self._random = Random(seed)
        self._port = port

    def options(self) -> str:
        """A known program with random options."""
        words = []
        for _ in range(self._random.randint(0, 4)):
            kind = self._random.random()
            if kind < 0.4:
                words.append(
                    "-" + "".join(self._random.choices(string.ascii_letters, k=self._random.choice([1, 1, 2, 3])))
                )
            else:
                words.append(self._random.choice(_LONG_OPTIONS if kind < 0.55 else _VALUES))
        words.append(self._random.choice("ab"))
        return f"{self._random.choice(_PROGRAMS)} {' '.join(map(shlex.quote, words))}"

    def awk(self) -> str:
        shape = self._random.choice(["{%s}", "%s", "NR>1{%s}", "/a/{%s}", "%s{print}"])
        return f"awk {shlex.quote(shape % self._text(_AWK))} a"

    def sed(self) -> str:
        return f"sed {shlex.quote(self._text(_SED))} a"

    def script(self, depth: int = 2) -> str:
        """Simple commands in compound ones, with variables, functions and changes of the folder between them."""
        if depth == 0 or self._random.random() < 0.3:
            return self._simple()
        first, second = self.script(depth - 1), self.script(depth - 1)
        shape = self._random.choice(_SHAPES).replace("_", " ").replace("PIPE", "|")
        return self._fill(shape.format(first, second))

    def nested(self, depth: int = 3) -> str:
        """A command in one of the places where bash may run it: `C` is a command, `W` a word, `Q` a quoted command."""
        if depth <= 0 or self._random.random() < 0.15:
            return self._random.choice(["touch out", "ls", "echo a", "to''uch out", "x=1 touch out"])
        return self._nest(self._random.choice(_COMMAND_PLACES), depth - 1)

    def _nest(self, template: str, depth: int) -> str:
        makers = {
            "C": lambda: self.nested(depth),
            "Q": lambda: shlex.quote(self.nested(depth)),
            "W": lambda: self._nest(self._random.choice(_WORD_PLACES), depth - 1) if depth > 0 else "$(touch out)",
        }
        return "".join(makers[letter]() if letter in makers else letter for letter in template)

    def _simple(self) -> str:
        text = self._fill(self._random.choice(_SIMPLE).replace("_", " "))
        if self._random.random() < 0.1:
            return self._fill(self._random.choice(_WRAPPERS)) + text
        return self._random.choice(_SCRIPT_WRAPPERS) + shlex.quote(text) if self._random.random() < 0.06 else text

    def _fill(self, text: str) -> str:
        while "W" in text:
            text = text.replace("W", self._random.choice(_WORDS).replace("_", " ").replace("PWD", "P\0D"), 1)
        return text.replace("\0", "W").replace("PORT", str(self._port))

    def _text(self, pieces: list[str]) -> str:
        count = self._random.randint(1, 7)
        return "".join(self._random.choices(pieces, k=count)).replace("_", " ").replace("%", "\n")
