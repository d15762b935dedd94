"""Models of Hugging Face transformers, trained whole or by adapters of PEFT, as a task."""
