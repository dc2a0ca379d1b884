package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/lab"
)

const ctlHelp = `words of lab ctl, guests by number:
  cut A B          no frame passes between A and B
  cut A to B       no frame passes from A to B; those from B to A do
  loss A B PERCENT so many frames between A and B are lost
  heal             no cut and no loss any more
  link A up|down   the cable of A: the guest sees that
  pause A          its processors stop
  continue A       and go on
  kill A           the power is cut
  wait             until all guests have ended`

// ctlTime bounds a control command but wait.
const ctlTime = 30 * time.Second

// answer does what one line says and answers ok or what went wrong.
func answer(ctx context.Context, down func(), c *lab.Cluster, conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(ctlTime))
	line, err := bufio.NewReaderSize(conn, 512).ReadSlice('\n')
	if err != nil {
		return
	}
	words := strings.Fields(string(line))
	if len(words) == 1 && words[0] == "down" {
		defer down()
	} else if len(words) == 1 && words[0] == "wait" {
		select {
		case <-ctx.Done():
		case <-c.AllDone():
		}
		_ = conn.SetDeadline(time.Now().Add(ctlTime))
	} else if err := do(c, words); err != nil {
		fmt.Fprintln(conn, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Fprintln(conn, "ok")
}

// do carries out the words of ctlHelp.
func do(c *lab.Cluster, words []string) error {
	guest := func(i int) (int, error) {
		n, err := strconv.Atoi(words[i])
		if err != nil || n < 1 || n > c.Len() {
			return 0, fmt.Errorf("there is no guest %s", words[i])
		}
		return n, nil
	}
	two := func(i, j int) (a, b int, err error) {
		if a, err = guest(i); err == nil {
			b, err = guest(j)
		}
		return a, b, err
	}
	is := func(name string, n int) bool { return len(words) == n && words[0] == name }
	switch {
	case is("cut", 3):
		a, b, err := two(1, 2)
		if err == nil {
			c.Switch.Cut(a, b)
		}
		return err
	case is("cut", 4) && words[2] == "to":
		a, b, err := two(1, 3)
		if err == nil {
			c.Switch.CutOneWay(a, b)
		}
		return err
	case is("loss", 4):
		a, b, err := two(1, 2)
		percent, perr := strconv.ParseFloat(words[3], 64)
		if err = errors.Join(err, perr); err == nil {
			c.Switch.Lose(a, b, percent/100)
		}
		return err
	case is("heal", 1):
		c.Switch.Heal()
		return nil
	case is("link", 3) && (words[2] == "up" || words[2] == "down"):
		n, err := guest(1)
		if err != nil {
			return err
		}
		return c.Guest(n).SetLink(words[2] == "up")
	case is("pause", 2), is("continue", 2), is("kill", 2):
		n, err := guest(1)
		if err != nil {
			return err
		}
		g := c.Guest(n)
		return map[string]func() error{"pause": g.Pause, "continue": g.Continue, "kill": g.Kill}[words[0]]()
	}
	return fmt.Errorf("not understood: %q (lab ctl help)", strings.Join(words, " "))
}

// tell sends one line to the process that owns the guests.
func tell(ctx context.Context, name, line string) error {
	dir, err := stateDir(name)
	if err != nil {
		return err
	}
	conn, err := dial(ctx, dir, "control", name)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	if answer = strings.TrimSpace(answer); answer != "ok" {
		return errors.New(answer)
	}
	return nil
}

func dial(ctx context.Context, dir, socket, name string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(dir, socket))
	if err != nil {
		return nil, fmt.Errorf("no such guest called %s is up (lab up -name %s): %w", name, name, err)
	}
	return conn, nil
}

// ctlCommand passes a line on to guests that are up.
func ctlCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	name := fs.String("name", "lab", "name of the guests")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if fs.NArg() == 0 || fs.Arg(0) == "help" {
		fmt.Println(ctlHelp)
		return 0, nil
	}
	if err := tell(ctx, *name, strings.Join(fs.Args(), " ")); err != nil {
		return 1, err
	}
	return 0, nil
}

// downCommand ends guests that are up, and waits until they are gone.
func downCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	name := fs.String("name", "lab", "name of the guests")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if err := tell(ctx, *name, "down"); err != nil {
		return 1, err
	}
	dir, err := stateDir(*name)
	if err != nil {
		return 1, err
	}
	for ctx, cancel := context.WithTimeout(ctx, ctlTime); ; {
		defer cancel()
		if _, err := os.Stat(dir); err != nil {
			return 0, nil
		}
		select {
		case <-ctx.Done():
			return 1, fmt.Errorf("%s is still ending: %w", *name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// listCommand lists the guests that are up, by name.
func listCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	base, err := stateDir("")
	if err != nil {
		return 1, err
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return 1, err
	}
	for _, e := range entries {
		if conn, err := dial(ctx, filepath.Join(base, e.Name()), "control", e.Name()); err == nil {
			conn.Close()
			agents, _ := filepath.Glob(filepath.Join(base, e.Name(), "agent*"))
			fmt.Printf("%s: %d guest(s)\n", e.Name(), len(agents))
		}
	}
	return 0, nil
}
