package main

import (
	"encoding/hex"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/internal/inspect"
)

func (a *app) inspectCmd() *cobra.Command {
	var opt inspect.Options
	var prefix, output string
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "show and check the keys of a stopped store",
		Long: `inspect opens the store in --data-dir without a server, reads every record and
checks it. It changes nothing. Exit code 1 if anything is damaged.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opt.Prefix = []byte(prefix)
			if opt.Hex {
				b, err := hex.DecodeString(prefix)
				if err != nil {
					return usagef("--prefix %q is not hexadecimal", prefix)
				}
				opt.Prefix = b
			}
			switch output {
			case "json":
				opt.JSON = true
			case "text":
			default:
				return usagef("--output is %q, want text or json", output)
			}
			return inspect.Run(cmd.Context(), a.stdout, a.cfg.DataDir, opt)
		},
	}
	cmd.Flags().BoolVar(&opt.Keys, "keys", false, "one line for each key")
	cmd.Flags().StringVar(&prefix, "prefix", "", "only keys that begin so")
	cmd.Flags().BoolVar(&opt.Hex, "hex", false, "keys and --prefix are hexadecimal")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "form of the output: text or json")
	return cmd
}
