// Command build builds programs with the go command and shows the progress and an estimate of the remaining time.
//
//	go run ./hack/build programs [-o bin] PACKAGE...   build programs of this repository
//	go run ./hack/build controlplane [PROGRAM...]      download or build the programs of a control plane
//	go run ./hack/build pin                            write the checksums of the official release binaries
//
// All programs are built with the default flags of the go command, so that programs and tests share the build cache.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage:
  go run ./hack/build programs [-o FOLDER] PACKAGE...
  go run ./hack/build controlplane [PROGRAM...]
  go run ./hack/build pin`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintln(os.Stderr, "build: interrupted; the next run continues where this one stopped")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	screen := newScreen(os.Stderr)
	switch command, rest := args[0], args[1:]; command {
	case "programs":
		return buildPrograms(ctx, screen, rest)
	case "controlplane":
		c, err := newControlPlane(os.Getenv, screen)
		if err != nil {
			return err
		}
		return c.provide(ctx, rest)
	case "pin":
		c, err := newControlPlane(os.Getenv, screen)
		if err != nil {
			return err
		}
		return c.pin(ctx)
	default:
		return fmt.Errorf("unknown command %q\n%s", command, usage)
	}
}

func buildPrograms(ctx context.Context, s *screen, args []string) error {
	out := "bin"
	if len(args) > 1 && args[0] == "-o" {
		out, args = args[1], args[2:]
	}
	if len(args) == 0 {
		return errors.New(usage)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("create folder %s: %w", out, err)
	}
	return compile(ctx, s, compilation{label: "programs", packages: args, flags: []string{"-o", out + "/"}})
}
