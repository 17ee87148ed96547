package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// totalAlloc is what the line of a heap profile begins with that says how many bytes were allocated since the process
// began.
const totalAlloc = "# TotalAlloc = "

// allocated returns how many bytes the API server has allocated since it began.
func (b *bench) allocated(ctx context.Context) (float64, error) {
	kube, err := kubernetes.NewForConfig(b.stack.Control.Config())
	if err != nil {
		return 0, fmt.Errorf("make a client for the heap profile: %w", err)
	}
	profile, err := kube.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("debug", "1").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the heap profile of the API server: %w", err)
	}
	return allocatedBy(string(profile))
}

// allocating begins to count what the API server allocates. What it returns tells how many MiB that is for each
// machine.
func (b *bench) allocating(ctx context.Context) (perMachine func(context.Context) (float64, error), err error) {
	before, err := b.allocated(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (float64, error) {
		after, err := b.allocated(ctx)
		return (after - before) / (1 << 20) / float64(b.n), err
	}, nil
}

// readingCosts returns how many bytes the API server allocates to tell how many it has allocated.
func (b *bench) readingCosts(ctx context.Context) (float64, error) {
	before, err := b.allocated(ctx)
	if err != nil {
		return 0, err
	}
	after, err := b.allocated(ctx)
	return after - before, err
}

// allocatedBy takes the number from a heap profile.
func allocatedBy(profile string) (float64, error) {
	_, rest, found := strings.Cut(profile, totalAlloc)
	if !found {
		return 0, errors.New("the heap profile of the API server does not say what was allocated")
	}
	number, _, _ := strings.Cut(rest, "\n")
	bytes, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return 0, fmt.Errorf("read what the API server has allocated: %w", err)
	}
	return bytes, nil
}
