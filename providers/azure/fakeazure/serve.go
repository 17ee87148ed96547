package fakeazure

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Endpoint is the address of a fake Azure in another process, with its credentials.
type Endpoint struct {
	URL          string `json:"url"`
	CAFile       string `json:"caFile"`
	AdminKey     string `json:"adminKey"`
	Tenant       string `json:"tenantID"`
	Subscription string `json:"subscriptionID"`
	Client       string `json:"clientID"`
	Secret       string `json:"clientSecret"`
	Subnet       string `json:"subnetID"`
}

// WriteEndpoint writes the endpoint to a file. WriteEndpoint renames a complete temporary file, so that readers never
// see an incomplete file.
func WriteEndpoint(path string, e Endpoint) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(raw)
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// SelfSigned returns a TLS configuration with a new certificate for an address, and the certificate to trust.
func SelfSigned(address net.Addr) (*tls.Config, []byte, error) {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "fakeazure"}, NotBefore: now.Add(-time.Hour),
		NotAfter:    now.Add(7 * 24 * time.Hour),
		IPAddresses: []net.IP{net.ParseIP(host)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, fmt.Errorf("create a certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// State is the state that the admin API returns.
type State struct {
	// Resources lists the existing resources: see Azure.Resources.
	Resources []string `json:"resources"`
	// Created is the number of virtual machines ever created.
	Created int `json:"made"`
	// Tags, Sizes and Consoles contain the tags, the size and the last console lines of each virtual machine by name.
	Tags     map[string]map[string]string `json:"tags"`
	Sizes    map[string]string            `json:"sizes"`
	Consoles map[string][]string          `json:"consoles"`
}

// State returns the state for the admin API.
func (a *Azure) State() State {
	s := State{Resources: a.Resources(), Created: a.CreatedCount(), Tags: map[string]map[string]string{},
		Sizes: map[string]string{}, Consoles: map[string][]string{}}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.resources {
		if r.kind != kindVM {
			continue
		}
		s.Tags[r.name] = map[string]string{}
		for key, value := range r.tags() {
			s.Tags[r.name][key], _ = value.(string)
		}
		s.Sizes[r.name] = text(r.body, "properties", "hardwareProfile", "vmSize")
		s.Consoles[r.name] = append([]string{}, r.vm.console...)
	}
	return s
}

// WithAdmin adds an admin API under /fake/, which requires the key. GET state returns the state, POST faults adds a
// fault and returns its number, and DELETE faults/{number} removes it.
func (a *Azure) WithAdmin(key string) http.Handler {
	admin := http.NewServeMux()
	reply := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body) // The client may have disconnected.
	}
	admin.HandleFunc("GET /fake/state", func(w http.ResponseWriter, _ *http.Request) { reply(w, a.State()) })
	admin.HandleFunc("POST /fake/faults", func(w http.ResponseWriter, r *http.Request) {
		var f Fault
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&f); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, a.addFault(f))
	})
	admin.HandleFunc("DELETE /fake/faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		var id int
		if _, err := fmt.Sscan(r.PathValue("id"), &id); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.removeFault(id)
		reply(w, id)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/fake/") {
			a.ServeHTTP(w, r)
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+key {
			http.Error(w, "the key is wrong", http.StatusUnauthorized)
			return
		}
		admin.ServeHTTP(w, r)
	})
}

// Tag sets a tag on all virtual machines, like a policy of the subscription.
func (a *Azure) Tag(key, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.resources {
		if r.kind == kindVM {
			r.tags()[key] = value
			r.touch()
		}
	}
}

// PartTags returns the tags of all resources of a type, such as "disks", by name.
func (a *Azure) PartTags(resourceType string) map[string]map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]map[string]string{}
	for _, r := range a.resources {
		if !strings.HasSuffix(string(r.kind), "/"+resourceType) {
			continue
		}
		all[r.name] = map[string]string{}
		for key, value := range r.tags() {
			all[r.name][key], _ = value.(string)
		}
	}
	return all
}
