"""What the bundled checkpoints are before anything is learnt: `checkpoints.yaml` is the one table of them all.

`first_weights` says what networks begin with where random numbers are not enough. What pictures, clips and sounds are
made of is written down in `picture_autoencoder`, `video_autoencoder` and `sound`, and nobody trains it but the decoder
of pictures. `vocabulary` learns the tokenizers, which then stay as they are stored.
"""
