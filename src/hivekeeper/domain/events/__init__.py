"""Everything that can happen, as small frozen values in the past tense, each declared once.

A body says what happened; the envelope says who, why, when it happened and when it was written down. Bodies hold only
JSON values, so that the log can be read without this program. `REQUESTS` are the bodies a person may append; all the
others need the keeper's epoch.
"""

from hivekeeper.domain.events.agent import *  # noqa: F403 - every event is one of ours
from hivekeeper.domain.events.convoy import *  # noqa: F403 - every event is one of ours
from hivekeeper.domain.events.hive import *  # noqa: F403 - every event is one of ours
from hivekeeper.domain.events.mail import *  # noqa: F403 - every event is one of ours
from hivekeeper.domain.events.merge import *  # noqa: F403 - every event is one of ours
from hivekeeper.domain.events.repo import *  # noqa: F403 - every event is one of ours
from hivekeeper.domain.events.run import *  # noqa: F403 - every event is one of ours
from hivekeeper.domain.events.task import *  # noqa: F403 - every event is one of ours
from hivekeeper.domain.schema import *  # noqa: F403 - every event is one of ours
