// Command run starts a libvirt with QEMU on this machine, prints how to use it, and stops it at the end.
//
//	go run ./hack/libvirt/run [--dir DIR] [--import VOLUME=IMAGE] [-- COMMAND...]
//
// COMMAND finds the URI in the environment variable LIBVIRT_DEFAULT_URI. Without a command, libvirt runs until this
// program is interrupted.
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

	"machinist.dev/machinist/hack/libvirt"
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
	dir := flag.String("dir", "", "the `folder` of libvirt, which must be empty (default: a temporary folder)")
	image := flag.String("import", "", "`VOLUME=IMAGE`: import an image file into the pool as a volume")
	flag.Parse()
	if *dir == "" {
		temporary, err := os.MkdirTemp("", "libvirt-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temporary)
		*dir = temporary
	}
	h, err := libvirt.Start(ctx, libvirt.Options{Dir: *dir, Output: os.Stderr})
	if err != nil {
		return err
	}
	defer func() {
		if stopped := h.Stop(); err == nil {
			err = stopped
		}
	}()
	if volume, file, given := strings.Cut(*image, "="); given {
		if err := h.Import(ctx, volume, file); err != nil {
			return err
		}
	}
	environment := "LIBVIRT_DEFAULT_URI=" + h.URI()
	if flag.NArg() == 0 {
		fmt.Printf("libvirt runs until you interrupt this program. To use it:\n\nexport '%s'\nvirsh list --all\n\n"+
			"It has the pool %s (%s), the pool %s (32 MiB) and the network %s (%s, this machine is %s).\n"+
			"It is also available at %s, without authentication.\n", environment, libvirt.PoolName, h.PoolPath(), libvirt.SmallPool,
			libvirt.Network, h.Subnet(), h.BridgeAddress(), h.TCPURI())
		<-ctx.Done()
		return nil
	}
	cmd := exec.CommandContext(ctx, flag.Arg(0), flag.Args()[1:]...)
	cmd.Env = append(os.Environ(), environment)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
