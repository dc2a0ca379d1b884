package main

import (
	"context"
	"flag"

	"github.com/rdmakv/rdmakv/lab/siw"
)

// siwCommand is package siw's own: it has its flags and its help.
func siwCommand(ctx context.Context, _ *flag.FlagSet, args []string) (int, error) {
	return siw.Run(ctx, args)
}
