// Command release builds, publishes and verifies a release of Machinist. The release workflow and the rehearsal use the
// same steps:
//
//	release build --tag v1.2.3 --registry registry/prefix --repository https://github.com/owner/name
//	release publish [--key cosign.key]
//	release verify --identity URL | --key cosign.pub
//	release rehearse
//
// The step build writes all files of a release into dist/release. The step publish pushes the images and charts, and
// signs them and the checksums of all files. If no key is given, the signatures are made with the identity of the
// GitHub workflow. The step verify compares the registry with dist/release, and checks the signatures. The step
// rehearse does all of this for a clone of the last commit and a local registry, and checks that verify finds
// manipulations.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
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
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	p := &project{root: c.root, log: os.Stdout}
	if c.step == "rehearse" {
		return rehearse(ctx, p)
	}
	if c.step == "build" {
		_, err := p.build(ctx, c.folder, c.release)
		return err
	}
	r, err := load(c.folder)
	switch {
	case err != nil:
		return err
	case c.step == "publish":
		return p.publish(ctx, r, c.signer)
	default:
		return p.verify(ctx, r, c.signer)
	}
}

type call struct {
	step         string
	root, folder string
	release      release
	signer       signer
}

func parse(args []string) (call, error) {
	if len(args) == 0 {
		return call{}, errors.New("name a step: build, publish, verify or rehearse")
	}
	c := call{step: args[0]}
	flags := flag.NewFlagSet("release "+c.step, flag.ContinueOnError)
	flags.StringVar(&c.root, "root", ".", "folder of the repository")
	required := map[string]*string{}
	switch c.step {
	case "build":
		flags.StringVar(&c.release.Tag, "tag", "", "tag to release, which must be checked out")
		flags.StringVar(&c.release.Registry, "registry", "",
			"registry and prefix of the images and charts, such as registry.example.com/machinist")
		flags.StringVar(&c.release.Repository, "repository", "", "URL of the repository, such as https://github.com/owner/name")
		required = map[string]*string{"tag": &c.release.Tag, "registry": &c.release.Registry,
			"repository": &c.release.Repository}
	case "publish":
		flags.StringVar(&c.signer.key, "key", "", "private key of cosign (default: the identity of the workflow)")
	case "verify":
		flags.StringVar(&c.signer.key, "key", "", "public key of cosign")
		flags.StringVar(&c.signer.identity, "identity", "", "identity of the workflow that signed the release")
		flags.StringVar(&c.signer.issuer, "issuer", "https://token.actions.githubusercontent.com",
			"issuer of the token that proves the identity")
	case "rehearse":
	default:
		return c, fmt.Errorf("unknown step %q: use build, publish, verify or rehearse", c.step)
	}
	if c.step != "rehearse" {
		flags.StringVar(&c.folder, "folder", "", "folder of the release (default ROOT/dist/release)")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("release %s does not accept the argument %q", c.step, flags.Arg(0))
	}
	for _, name := range []string{"tag", "registry", "repository"} {
		if value := required[name]; value != nil && *value == "" {
			return c, fmt.Errorf("release %s needs --%s", c.step, name)
		}
	}
	if c.step == "verify" && (c.signer.key == "") == (c.signer.identity == "") {
		return c, errors.New("release verify needs either --identity or --key")
	}
	if c.folder == "" {
		c.folder = filepath.Join(c.root, "dist", "release")
	}
	return c, nil
}
