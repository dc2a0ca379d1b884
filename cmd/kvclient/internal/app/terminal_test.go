package app

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/cli"
)

// TestConfirm: only a clear yes is one.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, " y \n": true, "\n": false, "": false, "n\n": false, "yo\n": false} {
		var errOut bytes.Buffer
		a := &App{Stdin: strings.NewReader(answer), Stderr: &errOut}
		if a.Confirm(t.Context(), "delete all?") != want || errOut.String() != "kvclient: delete all? [y/N] " {
			t.Errorf("%q: %q", answer, &errOut)
		}
	}
}

// TestConfirmEnds: a person who gives up by Ctrl-C has said no, and need not type anything more.
func TestConfirmEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &App{Stdin: r, Stderr: io.Discard}
	if a.Confirm(ctx, "begin?") {
		t.Error("it is taken for a yes")
	}
}

// TestMayAsk: where nobody can be asked it is wrong usage, which names the way out.
func TestMayAsk(t *testing.T) {
	a := &App{Stdin: strings.NewReader("y\n")}
	if err := a.MayAsk("cluster add", "begins"); !cli.IsUsage(err) || !strings.Contains(err.Error(), "cluster add asks before it begins") || !strings.Contains(err.Error(), "--yes") {
		t.Error(err)
	}
}

// TestLine: where lines stay, one is written when there is something new, and nothing after the end.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLine(&out)
		time.Sleep(3 * cli.LineEvery)
		for _, text := range []string{"1 of 2", "1 of 2", "2 of 2"} {
			l.Set(0.5, text)
			time.Sleep(2 * cli.LineEvery)
		}
		l.End()
		l.Set(1, "over")
		time.Sleep(2 * cli.LineEvery)
		if out.String() != "1 of 2\n2 of 2\n" {
			t.Errorf("%q", &out)
		}
	})
}
