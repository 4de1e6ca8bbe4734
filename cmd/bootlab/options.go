package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// options are the flags that every command takes.
type options struct {
	lab    string
	server string
	token  string
	json   bool
}

func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.lab, "lab", daemon.DefaultLab, "lab `file`, or folder of *.yaml files")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.StringVar(&o.server, "server", os.Getenv("BOOTLAB_SERVER"), "`address` of the daemon: its Unix socket, or http://host:port (default: the lab file's admin_socket)")
	f.StringVar(&o.token, "token", os.Getenv("BOOTLAB_TOKEN"), "`token` for http:// addresses (see bootlab token)")
}

// client returns a client of the daemon. Where no address is given, the lab file says where its socket is; a lab file that
// is broken must not keep anyone from asking the daemon that still runs the last good one.
func (o *options) client() (*api.Client, error) {
	server := o.server
	if server == "" {
		if _, err := os.Stat(o.lab); errors.Is(err, fs.ErrNotExist) && o.lab != daemon.DefaultLab {
			return nil, fmt.Errorf("the lab file says where the daemon is: %w; set the lab file with --lab, or the daemon with --server", err)
		}
		server = load.Appliance(o.lab).AdminSocket
	}
	return api.NewClient(server, o.token)
}

// noLab adds to the error that no daemon runs that the lab file, which says where, is missing. Who has named the lab file or the
// daemon knows where it is.
func noLab(cmd *cobra.Command, err error) error {
	if cmd.Flag("lab").Changed || cmd.Flag("server").Value.String() != "" {
		return err
	}
	if _, missing := os.Stat(daemon.DefaultLab); errors.Is(err, api.ErrNoDaemon) && errors.Is(missing, fs.ErrNotExist) {
		return fmt.Errorf("%w; %s does not exist: if your lab file is another one, name it with --lab", err, daemon.DefaultLab)
	}
	return err
}

// print writes v as JSON if that was asked for, else as text.
func (o *options) print(cmd *cobra.Command, v any, text func() error) error {
	if !o.json {
		return text()
	}
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printLine writes v as one line of JSON if that was asked for, else as text: for answers that never end.
func (o *options) printLine(cmd *cobra.Command, v any, text func() error) error {
	if !o.json {
		return text()
	}
	return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
}
