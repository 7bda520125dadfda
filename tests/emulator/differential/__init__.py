"""The same PTX on the emulator and on a GPU: cases, recorder, replay and report.

``record`` runs every case and writes one fixture per group; ``compare`` replays fixtures on the
emulator. Inputs are made from seeds by integer arithmetic, so that every machine makes the same.
"""
