package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func serveCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("images serve", flag.ContinueOnError)
	var layouts listValue
	flags.Var(&layouts, "layout", "image layout to serve; can be repeated (default ../../dist/images)")
	listen := flags.String("listen", "127.0.0.1:0", "address to serve on; port 0 selects a free port")
	anywhere := flags.Bool("allow-non-loopback", false,
		"serve on an address that other machines can reach, without encryption and authentication")
	addressFile := flags.String("address-file", "", "file to which the address is written when all images are served")
	verbose := flags.Bool("verbose", false, "print the requests")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("the command 'images serve' does not accept the argument %q", flags.Arg(0))
	}
	if len(layouts) == 0 {
		layouts = listValue{filepath.Join("..", "..", "dist", "images")}
	}
	host, _, err := net.SplitHostPort(*listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if ip := net.ParseIP(host); !*anywhere && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--listen: %q is not a loopback address, and --allow-non-loopback is not set", *listen)
	}
	requests := io.Discard
	if *verbose {
		requests = os.Stderr
	}
	return serve(ctx, layouts, *listen, requests, func(address string) error {
		fmt.Println(address)
		if *addressFile == "" {
			return nil
		}
		// Rename the complete file, so that a waiting process never reads a partial address.
		if err := os.WriteFile(*addressFile+".new", []byte(address), 0o644); err != nil {
			return err
		}
		return os.Rename(*addressFile+".new", *addressFile)
	})
}

// serve runs a registry with the images of layouts until ctx ends. Images pushed by clients are deleted at the end.
func serve(ctx context.Context, layouts []string, listen string, requests io.Writer,
	ready func(address string) error) error {
	pushed, err := os.MkdirTemp("", "images-registry-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(pushed)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	server := &http.Server{
		Handler: registry.New(registry.WithBlobHandler(newBlobs(pushed, layouts)), registry.WithReferrersSupport(true),
			registry.Logger(log.New(requests, "", log.LstdFlags))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	address := listener.Addr().String()
	for _, folder := range layouts {
		l := &imageLayout{folder: folder}
		if err := l.push(ctx, prefix(address), io.Discard); err != nil {
			return errors.Join(err, server.Close())
		}
	}
	if err := ready(address); err != nil {
		return errors.Join(err, server.Close())
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// blobs reads blobs from the layouts and from the folder with pushed blobs, and stores pushed blobs.
type blobs struct {
	all    []registry.BlobHandler
	pushed registry.BlobPutHandler
}

func newBlobs(pushed string, layouts []string) *blobs {
	own := registry.NewDiskBlobHandler(pushed)
	b := &blobs{all: []registry.BlobHandler{own}, pushed: own.(registry.BlobPutHandler)}
	for _, folder := range layouts {
		b.all = append(b.all, registry.NewDiskBlobHandler(filepath.Join(folder, "blobs")))
	}
	return b
}

// Get implements registry.BlobHandler.
func (b *blobs) Get(ctx context.Context, repository string, digest v1.Hash) (io.ReadCloser, error) {
	for _, handler := range b.all {
		content, err := handler.Get(ctx, repository, digest)
		if !errors.Is(err, os.ErrNotExist) {
			return content, err
		}
	}
	return nil, registry.ErrNotFound
}

// Stat implements registry.BlobStatHandler.
func (b *blobs) Stat(ctx context.Context, repository string, digest v1.Hash) (int64, error) {
	for _, handler := range b.all {
		size, err := handler.(registry.BlobStatHandler).Stat(ctx, repository, digest)
		if !errors.Is(err, registry.ErrNotFound) {
			return size, err
		}
	}
	return 0, registry.ErrNotFound
}

// Put implements registry.BlobPutHandler.
func (b *blobs) Put(ctx context.Context, repository string, digest v1.Hash, content io.ReadCloser) error {
	return b.pushed.Put(ctx, repository, digest, content)
}
