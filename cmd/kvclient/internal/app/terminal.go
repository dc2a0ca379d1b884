package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/rdmakv/rdmakv/internal/cli"
)

// What a command says to a person, and asks: questions before something begins that
// has no way back, and a line that tells how far something is that others do.

// MayAsk finds that nobody can be asked, as in a script: a usage error that names
// the command, what it is about to do ("deletes"), and --yes.
func (a *App) MayAsk(command, does string) error {
	if cli.IsTerminal(a.Stdin) {
		return nil
	}
	return cli.Usagef("%s asks before it %s, and standard input is no terminal: say --yes", command, does)
}

// Confirm asks on the terminal; whatever is no clear yes is a no, and so is the end
// of ctx.
func (a *App) Confirm(ctx context.Context, question string) bool {
	fmt.Fprintf(a.Stderr, "kvclient: %s [y/N] ", question)
	said := make(chan string, 1)
	go func() { // it stays until the person types something, or the program ends
		line, _ := bufio.NewReader(a.Stdin).ReadString('\n')
		said <- line
	}()
	select {
	case line := <-said:
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes"
	case <-ctx.Done():
		fmt.Fprintln(a.Stderr)
		return false
	}
}

// A Line tells how far something is: a bar with a text on a terminal, which is drawn
// anew in its place, and elsewhere the text, now and then, if it is another one. Its
// methods are safe for concurrent use.
type Line struct {
	w    io.Writer
	tty  bool
	stop func()

	mu    sync.Mutex
	share float64 // done, from 0 to 1
	text  string  // "": there is nothing to show yet
	shown string  // last, where it is no terminal
}

// NewLine begins to show a line on w, standard error. The caller ends it with End.
func NewLine(w io.Writer) *Line {
	l := &Line{w: w, tty: cli.IsTerminal(w)}
	every := cli.LineEvery
	if l.tty {
		every = cli.RedrawEvery
	}
	l.stop = cli.Every(every, l.draw)
	return l
}

// Set says what is shown from now on: which share is done, and a text of one line
// that no terminal obeys.
func (l *Line) Set(share float64, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share, l.text = min(max(share, 0), 1), text
}

// End takes the line away. After it nothing is written any more.
func (l *Line) End() {
	l.stop()
	if l.tty {
		cli.Wipe(l.w)
	}
}

func (l *Line) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.text == "" || !l.tty && l.text == l.shown:
	case l.tty:
		cli.Redraw(l.w, cli.Cut(cli.Bar(l.share, l.text), cli.Columns(l.w)))
	default:
		l.shown = l.text
		fmt.Fprintln(l.w, l.text)
	}
}
