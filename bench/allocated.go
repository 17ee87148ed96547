package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// totalAlloc begins the line of a heap profile with the number of bytes allocated since the start of the process.
const totalAlloc = "# TotalAlloc = "

func (b *bench) allocated(ctx context.Context) (float64, error) {
	kube, err := kubernetes.NewForConfig(b.stack.Control.Config())
	if err != nil {
		return 0, fmt.Errorf("create a client for the heap profile: %w", err)
	}
	profile, err := kube.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("debug", "1").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the heap profile of the API server: %w", err)
	}
	return allocatedBy(string(profile))
}

// startAllocation starts to measure the memory that the API server allocates. The returned function reports MiB per
// machine since the start.
func (b *bench) startAllocation(ctx context.Context) (perMachine func(context.Context) (float64, error), err error) {
	before, err := b.allocated(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (float64, error) {
		after, err := b.allocated(ctx)
		return (after - before) / (1 << 20) / float64(b.n), err
	}, nil
}

// costOfReading returns the number of bytes that the API server allocates to serve one heap profile.
func (b *bench) costOfReading(ctx context.Context) (float64, error) {
	before, err := b.allocated(ctx)
	if err != nil {
		return 0, err
	}
	after, err := b.allocated(ctx)
	return after - before, err
}

func allocatedBy(profile string) (float64, error) {
	_, rest, found := strings.Cut(profile, totalAlloc)
	if !found {
		return 0, errors.New("the heap profile of the API server does not contain the allocated bytes")
	}
	number, _, _ := strings.Cut(rest, "\n")
	bytes, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return 0, fmt.Errorf("parse the allocated bytes in the heap profile: %w", err)
	}
	return bytes, nil
}
