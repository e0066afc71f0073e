from __future__ import annotations

import pytest
from tests.unit.shell.effects.rule_matching import HOME, ROOT, analysis_of

from wieldy.shell.effects.analysis import classify

NEVER = r"""
rm -rf /
rm -fr /
rm -r -f /
rm -rf //
rm -rf /.
rm -rf /..
rm -rf /../
rm -rf /./
rm -rf /*
rm -rf //*
rm -rf /etc/..
rm -rf -- /
rm / -rf
rm --recursive --force /
rm --rec /
rm -Rf /
rm -rf --no-preserve-root /
rm -rf --no-pres x
rm -rf "/"
rm -rf '/'
\rm -rf /
/bin/rm -rf /
sudo rm -rf /
sudo -n rm -rf /
env rm -rf /
bash -c 'rm -rf /'
sh -c "rm -rf /"
eval 'rm -rf /'
ls; rm -rf /
ls && rm -rf / &
(rm -rf /)
{ rm -rf /; }
if true; then rm -rf /; fi
f() { rm -rf /; }; f
echo $(rm -rf /)
cd / && rm -rf .
cd / && rm -rf *
rm -rf /etc
rm -rf /usr /bin
rm -rf {/,x}
rm -rf /usr/*
for d in /etc; do rm -rf "$d"; done
ls @(a) ; rm -rf /
mkfs /dev/sda1
mkfs.ext4 /dev/sda1
mkfs.xfs -f /dev/nvme0n1
mke2fs /dev/sda
wipefs -a /dev/sda
blkdiscard /dev/sda
dd if=/dev/zero of=/dev/sda
dd of=/dev/nvme0n1 if=x bs=1M
sudo dd if=x of=/dev/vda
cp x /dev/sda
cat x > /dev/sda
echo x >> /dev/sdb1
> /dev/sda
: > /dev/mapper/root
tee /dev/sda < x
echo x | tee /dev/sda
shred /dev/sda
shred -n 1 -z /dev/sda
mv x /dev/sda
chmod -R 777 /
chmod 777 -R /
chmod -R 777 /etc
chmod --recursive 777 /
chown -R me /
chown -R me:me /*
:(){ :|:& };:
:(){ :|: & };:
bomb() { bomb | bomb & }; bomb
function b { b & b & }; b
b() { (b & b &); }; b
bash -c ':(){ :|:& };:'
find / -delete
""".strip().splitlines()

ASKED = r"""
rm -rf ~
rm -rf ~/
rm -rf "$HOME"
rm -rf $HOME
rm -rf ${HOME}
rm -rf "${HOME:?}"
rm -rf ~/*
rm -rf "$HOME"/*
rm -rf /home
rm -rf .git
rm -rf ./.git
rm -rf .git/
rm -rf sub/.git
rm -rf .
rm -rf ./
rm -rf *
rm -rf ./*
rm -rf "$PWD"
rm -rf ..
rm -rf "$DIR"/
rm -rf $DIR/*
rm -rf "${DIR}/"
cd ~ && rm -rf .
cd ..; rm -rf work
git rm -rf .
git rm -r .
mv ~ /tmp/x
mv .git /tmp/x
find . -delete
find ~ -type f -delete
chmod -R 777 ~
kill -9 -1
""".strip().splitlines()

ASKED_OVER_WORK = r"""
git reset --hard
git reset --hard HEAD~1
git -C sub reset --hard
git -c a=b reset --hard
git clean -fd
git clean -fdx
git clean -f
git clean --force -d
git checkout -- .
git checkout -- dir
git checkout .
git checkout -f main
git restore .
git restore --worktree --staged f
git switch --discard-changes main
sudo git clean -fd
bash -c 'git reset --hard'
git fetch && git reset --hard origin/main
""".strip().splitlines()

HARMLESS = r"""
rm -rf build
rm -rf ./node_modules
rm -rf *.pyc
rm -rf build/*
rm -rf /tmp/x
rm f
rm -f *.log
git reset HEAD f
git reset --soft HEAD~1
git clean -n
git clean -fdn
git checkout main
git checkout -b x
git restore --staged f
git rm f
git rm -r --cached .
git status
find . -name '*.pyc' -delete
chmod -R 755 build
chmod +x f
dd if=/dev/sda of=disk.img
cp /dev/sda1 x
echo x > /dev/null
ls /dev/sda
echo 'rm -rf /'
git commit -m 'rm -rf /'
grep -r 'rm -rf /' .
cat <<'EOF'
f() { g; }; f
fact() { fact; }
kill -9 123
""".strip().splitlines()


@pytest.mark.parametrize("command", NEVER)
def test_no_mode_runs_it(command: str) -> None:
    assert "deny" in {danger.behavior for danger in analysis_of(command).catastrophic}
    assert classify(command, cwd=ROOT, home=HOME) == "deny"


@pytest.mark.parametrize("command", ASKED)
def test_a_person_must_agree_in_every_mode(command: str) -> None:
    found = analysis_of(command).catastrophic
    assert found and all(danger.behavior == "ask" and not danger.only_if_dirty for danger in found)


@pytest.mark.parametrize("command", ASKED_OVER_WORK)
def test_a_person_must_agree_where_work_would_be_lost(command: str) -> None:
    found = analysis_of(command).catastrophic
    assert found and all(danger.behavior == "ask" and danger.only_if_dirty for danger in found)


@pytest.mark.parametrize("command", HARMLESS)
def test_everyday_commands_are_no_catastrophe(command: str) -> None:
    assert analysis_of(command).catastrophic == ()


def test_the_workspace_is_guarded_from_a_folder_inside_it() -> None:
    from wieldy.shell.effects.analysis import analyze

    found = analyze("rm -rf ..", cwd="/srv/project/sub", home=HOME, root="/srv/project").catastrophic
    assert [danger.why for danger in found] == ["it removes the whole workspace"]
