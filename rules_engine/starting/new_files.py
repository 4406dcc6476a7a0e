"""Creation of files, which never overwrites one."""

from pathlib import Path


def create_file(path: Path, text: str) -> bool:
    """Create a file and its folders; return False if the file exists.

    Raises OSError if it cannot be written, and deletes an incomplete file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(text)
    except BaseException:
        path.unlink()
        raise
    return True
