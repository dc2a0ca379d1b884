package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/store/layout"
)

// key reads a KEY argument.
func (a *app) key(arg string) ([]byte, error) {
	key, err := a.bytes("KEY", arg)
	switch {
	case err != nil:
		return nil, err
	case len(key) == 0:
		return nil, usagef("KEY is empty: keys have 1 to %d bytes", layout.MaxKeyLen)
	case len(key) > layout.MaxKeyLen:
		return nil, usagef("KEY has %d bytes: keys have 1 to %d", len(key), layout.MaxKeyLen)
	}
	return key, nil
}

// bytes reads an argument that is text or, with --hex, hexadecimal.
func (a *app) bytes(name, arg string) ([]byte, error) {
	if !a.hex {
		return []byte(arg), nil
	}
	b, err := hex.DecodeString(arg)
	if err != nil {
		return nil, usagef("%s %s is not hexadecimal: want an even number of digits 0-9, a-f", name, quote([]byte(arg)))
	}
	return b, nil
}

// readAll reads a value of bounded size from a stream.
func readAll(name string, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, layout.MaxValueLen+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, cause(err))
	}
	if len(b) > layout.MaxValueLen {
		return nil, fmt.Errorf("%s: %w: at most %d bytes", name, client.ErrTooLarge, layout.MaxValueLen)
	}
	return b, nil
}

// readFile reads a value from a file, or from standard input for "-".
func (a *app) readFile(path string) ([]byte, error) {
	if path == "-" {
		return readAll("standard input", a.stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", quote([]byte(path)), cause(err))
	}
	defer f.Close()
	return readAll(quote([]byte(path)), f)
}

// cause takes the path out of an error that names it once more.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// print writes to standard output. A write that fails is an error like any
// other: a script must not take half an answer for a whole one.
func (a *app) print(text string) error {
	if _, err := io.WriteString(a.stdout, text); err != nil {
		return fmt.Errorf("write standard output: %w", cause(err))
	}
	return nil
}

func (a *app) printJSON(v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	return a.print(b.String())
}

// show writes a key in text output: hexadecimal with --hex, as it is when
// that is harmless, else quoted. A key that begins with a quote is quoted, so
// that the two forms can be told apart.
func (a *app) show(key []byte) string {
	if a.hex {
		return hex.EncodeToString(key)
	}
	if printable(key) && key[0] != '"' {
		return string(key)
	}
	return strconv.Quote(string(key))
}

// printable: valid UTF-8 of visible characters and inner spaces.
func printable(b []byte) bool {
	if len(b) == 0 || !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return b[0] != ' ' && b[len(b)-1] != ' '
}

// quote shows foreign bytes in a message: quoted and cut, so that neither
// control characters nor megabytes reach a terminal.
func quote(b []byte) string {
	const most = 64
	if len(b) > most {
		return strconv.Quote(string(b[:most])) + fmt.Sprintf("... (%d bytes)", len(b))
	}
	return strconv.Quote(string(b))
}
