"""What is practised: data sets, made while they are learnt from."""
