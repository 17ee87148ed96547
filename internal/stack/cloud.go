package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"machinist.dev/machinist/internal/process"
)

// startCloud starts the simulated cloud and returns when it serves. Started again, it gets the same address.
func (s *Stack) startCloud(ctx context.Context) error {
	addressFile := filepath.Join(s.dir, "simcloud.address")
	for file, token := range map[string]string{"token": s.cloudToken, "admin-token": s.adminToken} {
		if err := os.WriteFile(filepath.Join(s.dir, file), []byte(token), 0o600); err != nil {
			return fmt.Errorf("write the token of the simulated cloud: %w", err)
		}
	}
	s.Cloud = &process.Process{
		Name: cloud, Path: filepath.Join(s.options.BinDir, cloud), Dir: s.dir,
		Args: []string{
			"--listen=127.0.0.1:0",
			"--state-dir=" + filepath.Join(s.dir, "simcloud"),
			"--token-file=" + filepath.Join(s.dir, "token"),
			"--admin-token-file=" + filepath.Join(s.dir, "admin-token"),
			"--address-file=" + addressFile,
		},
		Ended: s.reportEnd,
	}
	if err := s.Cloud.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := s.Cloud.Await(ctx, func(context.Context) error {
		address, err := os.ReadFile(addressFile)
		if err != nil {
			return err
		}
		s.cloudURL = "http://" + strings.TrimSpace(string(address))
		return nil
	})
	if err != nil {
		return err
	}
	s.Cloud.Args[0] = "--listen=" + strings.TrimPrefix(s.cloudURL, "http://")
	s.printf("the simulated cloud serves on %s", s.cloudURL)
	return nil
}

func (s *Stack) reportEnd(p *process.Process, err error) {
	s.printf("%s ended by itself: %v; see %s", p.Name, err, p.LogPath())
}
