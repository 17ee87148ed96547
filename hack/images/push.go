package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// prefix is the destination of a push: a registry and the beginning of repository names.
type prefix string

func pushCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("images push", flag.ContinueOnError)
	folder := flags.String("layout", filepath.Join("..", "..", "dist", "images"), "image layout to push")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("images push: name one registry and prefix, such as registry.example.com/machinist")
	}
	destination, err := parsePrefix(flags.Arg(0))
	if err != nil {
		return err
	}
	return (&imageLayout{folder: *folder}).push(ctx, destination, os.Stdout)
}

// parsePrefix runs before the build, so that an invalid prefix is reported early. With an empty prefix, nothing is
// pushed.
func parsePrefix(text string) (prefix, error) {
	if text == "" {
		return "", nil
	}
	if _, err := name.NewRepository(text+"/machinist", name.StrictValidation); err != nil {
		return "", fmt.Errorf("%q is not a registry and prefix such as registry.example.com/machinist: %w", text, err)
	}
	return prefix(text), nil
}

func (p prefix) repository(program string) (name.Repository, error) {
	return name.NewRepository(string(p)+"/"+program, name.StrictValidation)
}

// push pushes the images and bills of materials with the credentials of Docker and Podman. The method uses no TLS for
// a registry on this machine.
func (l *imageLayout) push(ctx context.Context, to prefix, out io.Writer) error {
	entries, err := read(l.folder)
	if err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, e := range entries {
		repository, err := to.repository(e.program)
		if err != nil {
			return err
		}
		if err := errors.Join(e.push(repository, options)); err != nil {
			return fmt.Errorf("push %s: %w", repository, err)
		}
		fmt.Fprintf(out, "pushed %s:%s@%s\n", repository, e.tag, e.digest)
	}
	return nil
}

func (e entry) push(to name.Repository, options []remote.Option) error {
	if err := remote.WriteIndex(to.Tag(e.tag), e.index, options...); err != nil {
		return err
	}
	for _, artifact := range e.artifacts {
		digest, err := artifact.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(to.Digest(digest.String()), artifact, options...); err != nil {
			return err
		}
	}
	return nil
}
