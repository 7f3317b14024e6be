"""The codec of each protocol, a row each."""

from collections.abc import Mapping

from cachegate.wire.chat.codec import CODEC as CHAT
from cachegate.wire.codec import Codec
from cachegate.wire.facts import Protocol
from cachegate.wire.messages.codec import CODEC as MESSAGES
from cachegate.wire.responses.codec import CODEC as RESPONSES

CODECS: Mapping[Protocol, Codec] = {
    Protocol.MESSAGES: MESSAGES,
    Protocol.RESPONSES: RESPONSES,
    Protocol.CHAT: CHAT,
}
