"""Python that a model wrote, in CPython compiled to WebAssembly: the guest (`guest`), and how it is built (`build`)."""
