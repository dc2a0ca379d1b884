package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// takeLab puts what was measured in a guest into the repository: file has times, or
// counted instructions, or both. The part that it does not have stays as it was, with
// the day on which it was measured. A shortened run changes nothing.
func takeLab(o options, log io.Writer) error {
	res, err := readLab(o.lab)
	if err != nil {
		return err
	}
	if res.Quick || res.Counted != nil && res.Counted.Quick {
		fmt.Fprintf(log, "shortened, so %s stays as it was: %s\n", labFile, o.lab)
		return nil
	}
	to := filepath.Join(o.root, labFile)
	old, err := readLab(to)
	switch {
	case errors.Is(err, os.ErrNotExist):
		old = res
	case err != nil:
		return err
	}
	if err := report.WriteFile(to, withPart(old, res).WriteJSON); err != nil {
		return err
	}
	fmt.Fprintln(log, "written:", labFile)
	err = rewrite(o)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(log, pageFile, "shows it after make bench-compare")
		return nil
	}
	return err
}

// withPart is old with the parts that res has, times or instructions.
func withPart(old, res *report.Result) *report.Result {
	all := *res
	if len(res.Rows) == 0 {
		all = *old
		all.Counted = res.Counted
	} else if res.Counted == nil {
		all.Counted = old.Counted
	}
	return &all
}

// readLab reads results of the lab, and refuses those without any.
func readLab(file string) (*report.Result, error) {
	res, err := readResults(file)
	if err == nil && len(res.Rows) == 0 && (res.Counted == nil || len(res.Counted.Rows) == 0) {
		err = fmt.Errorf("%s: %w: it has no rows", file, report.ErrSchema)
	}
	return res, err
}
