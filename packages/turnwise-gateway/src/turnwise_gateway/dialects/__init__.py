"""The request and reply formats of language-model services, one file each."""
