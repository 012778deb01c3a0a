"""Look like macOS in every Python process that has this folder on its path: Python imports this file at its start."""

from tests.support.other_systems import import_libraries, look_like_macos

import_libraries()
look_like_macos()
