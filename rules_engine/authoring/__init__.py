"""Rules as their authors handle them: checked, tested, converted, started."""
