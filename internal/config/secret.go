package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Limits of a secret, in bytes after the newline at its end is cut off.
const (
	MinSecret = 16
	MaxSecret = 1024
)

// Secret reads the file that secret_file names: nil when it names none. The
// file must belong to its owner alone, because whoever reads it can read and
// write every key; and a secret never stands in a flag or a variable, where
// ps(1) shows it.
func (c *Config) Secret() ([]byte, error) {
	if c.SecretFile == "" {
		return nil, nil
	}
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return nil, Faults{{Source: c.SecretFile, Key: "secret_file", Reason: err.Error()}}
	}
	return secret, nil
}

func readSecret(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	if perm := st.Mode().Perm(); perm&0o077 != 0 {
		return nil, fmt.Errorf("has mode %04o: others may read or change it; make it 0600", perm)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSecret+3))
	if err != nil {
		return nil, err
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(data) < MinSecret || len(data) > MaxSecret {
		return nil, fmt.Errorf("holds a secret of %d bytes, want %d to %d", len(data), MinSecret, MaxSecret)
	}
	return data, nil
}
