// Command run starts an OpenStack on this machine, prints how to use it, and stops it at the end.
//
//	go run ./hack/openstack/run [--dir DIR] [-- COMMAND...]
//
// COMMAND finds the cloud in the environment variables OS_CLIENT_CONFIG_FILE and OS_CLOUD. Without a command, the cloud
// runs until this program is interrupted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"machinist.dev/machinist/hack/openstack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	dir := flag.String("dir", "", "the `folder` of the cloud, which must be empty (default: a temporary folder)")
	flag.Parse()
	if *dir == "" {
		temporary, err := os.MkdirTemp("", "openstack-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temporary)
		*dir = temporary
	}
	cloud, err := openstack.Start(ctx, openstack.Options{Dir: *dir, Output: os.Stderr})
	if err != nil {
		return err
	}
	defer func() {
		if stopped := cloud.Stop(); err == nil {
			err = stopped
		}
	}()
	environment := cloud.Environment("machinist")
	if flag.NArg() == 0 {
		fmt.Printf("OpenStack runs until you interrupt this program. To use it:\n\nexport %s\n$OPENSTACK_COMMAND server list\n\n"+
			"The clouds in that file are machinist, machinist-key and admin.\n", strings.Join(environment, " "))
		<-ctx.Done()
		return nil
	}
	cmd := exec.CommandContext(ctx, flag.Arg(0), flag.Args()[1:]...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
