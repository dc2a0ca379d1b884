package launch

import "io"

// copyAll copies a stream to its end, and drops the rest of one that cannot be
// delivered: a process must not stop because its output has no reader.
func copyAll(w io.Writer, r io.ReadCloser) error {
	defer r.Close()
	if w == nil {
		w = io.Discard
	}
	_, err := io.Copy(w, r)
	if err != nil {
		_, _ = io.Copy(io.Discard, r)
	}
	return err
}
