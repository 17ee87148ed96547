package openstack

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestConfigurationIsComplete(t *testing.T) {
	dir := t.TempDir()
	s, err := newSettings(dir, "/opt/openstack")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.write(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "config", "*"))
	if err != nil || len(files) != 11 {
		t.Fatalf("got the files %v, want 11 (%v)", files, err)
	}
	unfilled := regexp.MustCompile(`\{\{|<no value>|(?m)=\s*$|:0\b`)
	address := regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+\b`)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := unfilled.FindString(string(content)); found != "" {
			t.Errorf("%s has an empty value: %q", file, found)
		}
		for _, found := range address.FindAllString(string(content), -1) {
			if found != "127.0.0.1" {
				t.Errorf("%s contains the address %s, want only 127.0.0.1", file, found)
			}
		}
	}
}

func TestHostsHaveNoDatabaseURL(t *testing.T) {
	dir := t.TempDir()
	s, err := newSettings(dir, "/opt/openstack")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.write(); err != nil {
		t.Fatal(err)
	}
	for _, compute := range NovaCompute() {
		for _, arg := range s.processes(compute)[0].Args {
			file, isFile := strings.CutPrefix(arg, "--config-file=")
			if !isFile {
				continue
			}
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(content), "mysql") {
				t.Errorf("%s reads %s, which contains a database URL", compute, file)
			}
		}
	}
}

func TestCloudsUseDistinctPorts(t *testing.T) {
	var ports []int
	for range 2 {
		s, err := newSettings(t.TempDir(), "/opt/openstack")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, s.Port.RabbitMQ, s.Port.Erlang, s.Port.PortMapper, s.Port.Keystone, s.Port.Placement,
			s.Port.Glance, s.Port.Neutron, s.Port.NovaAPI, s.Port.NovaMetadata, s.Port.Cinder)
	}
	slices.Sort(ports)
	if unique := slices.Compact(slices.Clone(ports)); len(unique) != len(ports) {
		t.Errorf("got the ports %v, want no duplicates", ports)
	}
}

func TestStartRejectsFolderWithFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("start in a folder with files: got %v, want an error", err)
	}
}
