"""What to do when a conversation is too much for its provider: withhold what it names, put aside, sum up."""

from __future__ import annotations

import re
from collections.abc import Iterable

from wieldy.core.abort import Abort
from wieldy.core.event import Compacted, Notice
from wieldy.core.message import ContentBlock
from wieldy.core.provider import Provider, ProviderFailure
from wieldy.core.threads import in_thread
from wieldy.providers.cost import cost
from wieldy.schema.pattern import pattern
from wieldy.session.attempt import Record
from wieldy.session.compact import CHARS_PER_TOKEN, put_aside, summarise, with_summary
from wieldy.session.conversation import Conversation
from wieldy.session.equipment import Equipment
from wieldy.session.moments import Moments
from wieldy.session.shorten import digest, is_thought, media, size

ROOMY = 0.5  # of the context window: what putting aside must reach to be enough

_NAMED = pattern(r"messages\.(\d+)\.content\.(\d+)")
_THOUGHTS = pattern(r"\bthinking\b|signature", re.IGNORECASE)
_MEDIA = pattern(r"image|picture|document|pdf|media|base64", re.IGNORECASE)


class Relief:
    """Makes room in one session's conversation. Everything it does is a record, so that a resumed session has it too."""

    def __init__(
        self, box: Equipment, provider: Provider, conversation: Conversation, record: Record, moments: Moments
    ) -> None:
        self.box = box
        self.provider = provider
        self.conversation = conversation
        self.record = record
        self.moments = moments
        self.tried = 0  # since the last answer: 1 results were put aside, 2 all was summed up

    async def after(self, failure: ProviderFailure, abort: Abort) -> bool:
        """Do something about a failure; false when there is nothing to be done about it."""
        if failure.kind in ("bad_request", "too_large") and (self._forgot(failure) or self._withhold(failure)):
            return True
        if failure.kind not in ("overflow", "too_large") or len(self.conversation.messages) < 2 or self.tried > 1:
            return False
        await self.compact("auto", abort, whole=self.tried > 0)
        return True

    async def compact(self, trigger: str, abort: Abort, wish: str = "", *, whole: bool = False) -> None:
        """Shorten the conversation: old results first; then, if that is not enough or `whole` is asked for, a summary."""
        if await self.moments.compacting(trigger, wish) and trigger == "auto" and not whole:
            return
        before_chars, before = self._chars(), self.tokens()
        stand_ins = await in_thread(
            put_aside, tuple(self.conversation.settled()), self.box.workspace.session_dir / "tool-results"
        )
        if stand_ins:
            self.record({"type": "shortened", "trigger": trigger, "results": stand_ins})
        after = before * self._chars() // max(before_chars, 1)
        self.tried = 1
        if whole or trigger == "manual" or not stand_ins or after > ROOMY * self.provider.context_window:
            await self._summed_up(trigger, abort, wish)
            self.tried = 2
            after = before * self._chars() // max(before_chars, 1)
        self.box.events.emit(Compacted(trigger=trigger, tokens_before=before, tokens_after=after))

    def tokens(self) -> int:
        """How many tokens the conversation is, as last counted by the provider, else as estimated."""
        return self.conversation.tokens or self._chars() // CHARS_PER_TOKEN

    async def _summed_up(self, trigger: str, abort: Abort, wish: str) -> None:
        history = self.conversation.settled()
        summary = await self.box.leash.hold(summarise(tuple(history), self.provider, wish), abort)
        messages = with_summary(history, summary.text, self.provider.context_window)
        self.record(
            {
                "type": "compacted",
                "trigger": trigger,
                "messages": [message.as_dict() for message in messages],
                "cost": cost(self.provider.model, summary.usage),
            }
        )

    def _forgot(self, failure: ProviderFailure) -> bool:
        """Leave out all thoughts where a provider does not know them again, as after a summary or a change of models."""
        if failure.kind != "bad_request" or not _THOUGHTS.search(str(failure)):
            return False
        if not any(is_thought(block) for message in self.conversation.settled() for block in message.content):
            return False
        self.record({"type": "forgot", "why": str(failure)})
        return True

    def _withhold(self, failure: ProviderFailure) -> bool:
        """Leave out the pictures and documents that a provider complains of, named or not."""
        said = str(failure)
        if failure.kind == "bad_request" and not _MEDIA.search(said):
            return False
        digests = sorted({digest(block) for block in self._named(said)})
        if not digests:
            return False
        self.record({"type": "withheld", "digests": digests, "why": said})
        self.box.events.emit(Notice(text=f"{len(digests)} picture(s) or document(s) left out: {said}"))
        return True

    def _named(self, said: str) -> Iterable[ContentBlock]:
        history = self.conversation.settled()
        if found := _NAMED.search(said):
            message, block = int(found[1]), int(found[2])
            if message < len(history) and block < len(history[message].content):
                named = list(media(history[message].content[block : block + 1]))
                if named:
                    return named
        return (block for message in history for block in media(message.content))

    def _chars(self) -> int:
        return sum(size(message.content) for message in self.conversation.settled())
