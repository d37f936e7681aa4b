"""The GPU back end: on a GPU (marked gpu), in Triton's interpreter, and as compiled code without either."""
