"""The offer to run commands unasked in the sandbox: made once, only where a sandbox holds, and the choice is kept."""

from __future__ import annotations

import json

import pytest
from tests.needs import skip_untested

from wieldy.engine.workspace_services import open_workspace
from wieldy.policy.settings.load import SettingsReader
from wieldy.policy.settings.offers import sandbox_offer, store_sandbox_choice
from wieldy.policy.settings.store import user_file
from wieldy.shell.sandbox.sandbox import choose_wrapper

pytestmark = pytest.mark.asyncio


async def offer(root, **settings):
    reader = SettingsReader(root, explicit=None, files=True, named=None)
    workspace = open_workspace(root, session_dir=root / "session", settings={"sandbox": settings})
    return await sandbox_offer(reader.read(), workspace)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


async def test_there_is_no_offer_where_no_sandbox_holds(tmp_path):
    assert await offer(tmp_path, mechanism="landlock") is None


@pytest.mark.parametrize("accepted", [True, False])
async def test_it_says_what_agreeing_means_and_is_made_until_the_person_has_chosen(tmp_path, accepted):
    if not choose_wrapper(None, "bubblewrap").is_complete:
        skip_untested("the offer of the sandbox: bubblewrap does not work here")
    found = await offer(tmp_path)
    assert found is not None
    text = "\n".join(found.lines)
    assert all(word in text for word in ("no network", "keys", "undo", "outside the sandbox", "sandbox.autoAllow"))
    assert store_sandbox_choice(accepted) == user_file()
    assert await offer(tmp_path) is None
    saved = json.loads(user_file().read_text())["sandbox"]
    assert saved == ({"enabled": True, "autoAllow": True} if accepted else {"autoAllow": False})
