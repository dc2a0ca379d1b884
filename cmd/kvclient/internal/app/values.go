package app

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Key reads a KEY argument. Its length is checked here and not by the server alone,
// because a wrong argument is wrong usage, whether a server is there or not.
func (a *App) Key(arg string) ([]byte, error) {
	key, err := a.Bytes("KEY", arg)
	switch {
	case err != nil:
		return nil, err
	case len(key) == 0:
		return nil, cli.Usagef("KEY is empty: keys have 1 to %d bytes", layout.MaxKeyLen)
	case len(key) > layout.MaxKeyLen:
		return nil, cli.Usagef("KEY has %d bytes: keys have 1 to %d", len(key), layout.MaxKeyLen)
	}
	return key, nil
}

// Bytes reads an argument that is text or, with --hex, hexadecimal: keys may be any
// bytes, and a shell passes neither zero bytes nor, everywhere, bytes that are no
// UTF-8. name is what the argument is called in the error.
func (a *App) Bytes(name, arg string) ([]byte, error) {
	if !a.Hex {
		return []byte(arg), nil
	}
	b, err := hex.DecodeString(arg)
	if err != nil {
		return nil, cli.Usagef("%s %s is not hexadecimal: want an even number of digits 0-9, a-f", name, cli.Quote([]byte(arg)))
	}
	return b, nil
}

// readAll reads a value of bounded size from a stream. One byte more than a value
// may have is read, which tells a value of the largest size from a stream without
// an end.
func readAll(name string, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, layout.MaxValueLen+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, cli.Cause(err))
	}
	if len(b) > layout.MaxValueLen {
		return nil, fmt.Errorf("%s: %w: at most %d bytes", name, client.ErrTooLarge, layout.MaxValueLen)
	}
	return b, nil
}

// ReadFile reads a value from a file, or from standard input for "-".
func (a *App) ReadFile(path string) ([]byte, error) {
	if path == "-" {
		return readAll("standard input", a.Stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", cli.Quote([]byte(path)), cli.Cause(err))
	}
	defer f.Close()
	return readAll(cli.Quote([]byte(path)), f)
}

// Source opens a value in a file, or on standard input for "-": value has all of it, or rest has it, if
// it is longer than layout.MaxValueLen. end closes what was opened, and is called when rest
// is not read any more.
func (a *App) Source(path string) (value []byte, rest io.Reader, end func(), err error) {
	name, from, end := "standard input", io.Reader(a.Stdin), func() {}
	if path != "-" {
		name = cli.Quote([]byte(path))
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("open %s: %w", name, cli.Cause(err))
		}
		from, end = f, func() { f.Close() }
	}
	value, err = io.ReadAll(io.LimitReader(from, layout.MaxValueLen+1))
	switch {
	case err != nil:
		end()
		return nil, nil, nil, fmt.Errorf("read %s: %w", name, cli.Cause(err))
	case len(value) > layout.MaxValueLen:
		return nil, io.MultiReader(bytes.NewReader(value), from), end, nil
	}
	return value, nil, end, nil
}

// Print writes to standard output. A write that fails is an error like any other: a
// script must not take half an answer for a whole one.
func (a *App) Print(text string) error {
	if _, err := io.WriteString(a.Stdout, text); err != nil {
		return fmt.Errorf("write standard output: %w", cli.Cause(err))
	}
	return nil
}

// PrintJSON prints a value as one line of JSON. <, > and & stay as they are: the
// output goes to programs and people, not into HTML.
func (a *App) PrintJSON(v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	return a.Print(b.String())
}

// Show writes a key or a value in text output so that a terminal takes no harm and
// that no two look the same: hexadecimal with --hex, as it is where it
// is printable, else quoted. A key that begins with a quote is quoted, too; else
// the two forms could be confused.
func (a *App) Show(key []byte) string {
	if a.Hex {
		return hex.EncodeToString(key)
	}
	if printable(key) && key[0] != '"' {
		return string(key)
	}
	return strconv.Quote(string(key))
}

// printable: valid UTF-8 of visible characters and inner spaces. A space at an end
// could not be seen, and two lines would look the same.
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

// Keys reads KEY arguments. It fails at the first that is wrong: nothing has been
// done yet.
func (a *App) Keys(args []string) ([][]byte, error) {
	keys := make([][]byte, len(args))
	for i, arg := range args {
		var err error
		if keys[i], err = a.Key(arg); err != nil {
			return nil, err
		}
	}
	return keys, nil
}
