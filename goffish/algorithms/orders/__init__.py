"""Orders and longest paths of directed graphs without cycles."""
