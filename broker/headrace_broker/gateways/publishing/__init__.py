"""Parts that publishers of every protocol share: admission, publish buffer, output, confirms."""
