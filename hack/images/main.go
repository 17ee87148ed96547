// Command images builds the container images of the programs in this repository, and serves them as a registry.
//
//	images build [--out dist/images] [--version v1.2.3] [--platforms linux/amd64,linux/arm64] [--push registry/prefix]
//	images push [--layout dist/images] registry/prefix
//	images serve [--layout dist/images]... [--address-file FILE]
//	images binaries --programs machinist --platforms darwin/arm64 [--out dist/binaries] [--version v1.2.3]
//
// The build subcommand writes an OCI image layout with an image for each program and platform. An image contains only
// the program, its license, and the licenses of the modules that are linked into it. An image has no shell, no user
// database and no temporary folder. Builds are reproducible: the same commit and version of Go give the same digests.
// All times in an image are the time of the commit.
//
// The binaries subcommand compiles programs for systems without images, each with a bill of materials.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("name a command: build, push, serve or binaries")
	}
	switch args[0] {
	case "build":
		return buildCommand(ctx, args[1:])
	case "push":
		return pushCommand(ctx, args[1:])
	case "serve":
		return serveCommand(ctx, args[1:])
	case "binaries":
		return binariesCommand(ctx, args[1:])
	default:
		return fmt.Errorf("unknown command %q: use build, push, serve or binaries", args[0])
	}
}

// listValue is a repeatable flag with comma-separated values.
type listValue []string

func (l *listValue) String() string { return strings.Join(*l, ",") }

func (l *listValue) Set(value string) error {
	for _, v := range strings.Split(value, ",") {
		if v = strings.TrimSpace(v); v != "" {
			*l = append(*l, v)
		}
	}
	return nil
}
