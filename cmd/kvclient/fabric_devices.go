package main

import "github.com/spf13/cobra"

func (a *app) fabricDevicesCmd() *cobra.Command {
	return &cobra.Command{Use: "devices"}
}
