//go:build openstack

package openstack

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestServersAreCreatedAndDeleted(t *testing.T) {
	p := newMember(t, startCloud(t))

	port := p.create(p.url.Neutron+"/v2.0/ports", "port", map[string]any{
		"network_id":            p.seeded.Networks["nodes"].ID,
		"security_groups":       []string{p.seeded.SecurityGroups["workers"]},
		"allowed_address_pairs": []map[string]any{{"ip_address": "10.80.200.0/24"}},
	})
	p.must("PUT", p.url.Neutron+"/v2.0/ports/"+port+"/tags/machinist", nil)
	volume := p.create(p.cinder+"/volumes", "volume", map[string]any{"size": 1, "volume_type": "fast"})
	p.expectVolume(volume, "available")

	fromImage := p.createServer(map[string]any{
		"flavorRef": p.seeded.Flavors["m1.small"], "imageRef": p.seeded.Images["debian-12"],
		"networks": []map[string]any{{"port": port}}, "key_name": "machinist", "availability_zone": "az-2",
		"user_data": base64.StdEncoding.EncodeToString([]byte("#cloud-config\n")),
	})
	fromVolume := p.createServer(map[string]any{
		"flavorRef": p.seeded.Flavors["diskless"],
		"networks":  []map[string]any{{"uuid": p.seeded.Networks["storage"].ID}},
		"block_device_mapping_v2": []map[string]any{{
			"source_type": "image", "destination_type": "volume", "uuid": p.seeded.Images["debian-12"],
			"volume_size": 1, "volume_type": "fast", "boot_index": 0, "delete_on_termination": true,
		}},
	})
	p.expectServer(fromImage, "ACTIVE")
	root := p.expectServer(fromVolume, "ACTIVE").Volumes[0].ID
	p.expectVolume(root, "in-use")

	p.must("POST", p.url.Nova+"/servers/"+fromImage+"/os-volume_attachments", map[string]any{
		"volumeAttachment": map[string]any{"volumeId": volume},
	})
	p.expectVolume(volume, "in-use")
	if got := p.userData(fromImage); got != "#cloud-config\n" {
		t.Errorf("the metadata service returns the user data %q, want #cloud-config", got)
	}
	if got := p.port(port); got.DeviceID != fromImage || got.Status != "ACTIVE" {
		t.Errorf("got the port %+v, want an active port of server %s", got, fromImage)
	}

	for _, server := range []string{fromImage, fromVolume} {
		p.must("DELETE", p.url.Nova+"/servers/"+server, nil)
	}
	for _, server := range []string{fromImage, fromVolume} {
		p.expectNotFound(p.url.Nova + "/servers/" + server)
	}
	p.expectNotFound(p.cinder + "/volumes/" + root)
	// The volume and the port were not created with the server, so they must remain.
	p.expectVolume(volume, "available")
	if got := p.port(port); got.DeviceID != "" {
		t.Errorf("the port still belongs to %s", got.DeviceID)
	}
	p.must("DELETE", p.url.Neutron+"/v2.0/ports/"+port, nil)
	p.must("DELETE", p.cinder+"/volumes/"+volume, nil)
	p.expectNotFound(p.url.Neutron + "/v2.0/ports/" + port)
	p.expectNotFound(p.cinder + "/volumes/" + volume)

	for _, flavor := range []string{"gpu", "vgpu", "impossible"} {
		server := p.createServer(map[string]any{
			"flavorRef": p.seeded.Flavors[flavor], "imageRef": p.seeded.Images["debian-12"], "networks": "none",
		})
		if got := p.expectServer(server, "ERROR").Fault.Message; !strings.Contains(got, "No valid host was found") {
			t.Errorf("a server of flavor %s failed with %q, want No valid host was found", flavor, got)
		}
		p.must("DELETE", p.url.Nova+"/servers/"+server, nil)
		p.expectNotFound(p.url.Nova + "/servers/" + server)
	}
}

func TestClientWorksWithEveryCloud(t *testing.T) {
	c := startCloud(t)
	for _, cloud := range []string{"machinist", "machinist-key", "admin"} {
		var networks []struct{ Name string }
		if err := c.ClientJSON(t.Context(), &networks, "network", "list", "--os-cloud="+cloud); err != nil {
			t.Fatal(err)
		}
		if len(networks) != 2 {
			t.Errorf("the cloud %s shows the networks %v, want two", cloud, networks)
		}
	}
}

type member struct {
	t       *testing.T
	cloud   *Cloud
	session *session
	url     urls
	cinder  string
	seeded  SeedObjects
}

func newMember(t *testing.T, c *Cloud) *member {
	t.Helper()
	s, err := c.member(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &member{t: t, cloud: c, session: s, url: c.settings.URL, cinder: c.volumes(s), seeded: c.SeedObjects()}
}

func (p *member) must(method, url string, body any) {
	p.t.Helper()
	if err := p.session.do(p.t.Context(), method, url, body, nil); err != nil {
		p.t.Fatal(err)
	}
}

func (p *member) create(url, kind string, fields map[string]any) string {
	p.t.Helper()
	id, err := create(p.t.Context(), p.session, url, kind, fields)
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

func (p *member) createServer(fields map[string]any) string {
	p.t.Helper()
	fields["name"] = "test"
	return p.create(p.url.Nova+"/servers", "server", fields)
}

type server struct {
	Status  string
	Fault   struct{ Message string }
	Volumes []struct{ ID string } `json:"os-extended-volumes:volumes_attached"`
}

func (p *member) expectServer(id, status string) server {
	p.t.Helper()
	var answer struct{ Server server }
	eventually(p.t, func(ctx context.Context) error {
		if err := p.session.do(ctx, "GET", p.url.Nova+"/servers/"+id, nil, &answer); err != nil {
			return err
		}
		if answer.Server.Status != status {
			return fmt.Errorf("server %s is %+v, want the status %s", id, answer.Server, status)
		}
		return nil
	})
	return answer.Server
}

func (p *member) expectVolume(id, status string) {
	p.t.Helper()
	eventually(p.t, func(ctx context.Context) error {
		var answer struct{ Volume struct{ Status string } }
		if err := p.session.do(ctx, "GET", p.cinder+"/volumes/"+id, nil, &answer); err != nil {
			return err
		}
		if answer.Volume.Status != status {
			return fmt.Errorf("volume %s is %s, want %s", id, answer.Volume.Status, status)
		}
		return nil
	})
}

type port struct {
	Status   string
	DeviceID string `json:"device_id"`
}

func (p *member) port(id string) port {
	p.t.Helper()
	var answer struct{ Port port }
	if err := p.session.do(p.t.Context(), http.MethodGet, p.url.Neutron+"/v2.0/ports/"+id, nil, &answer); err != nil {
		p.t.Fatal(err)
	}
	return answer.Port
}

func (p *member) expectNotFound(url string) {
	p.t.Helper()
	eventually(p.t, func(ctx context.Context) error {
		switch err := p.session.do(ctx, "GET", url, nil, nil); {
		case err == nil:
			return errors.New(url + " still exists")
		case strings.Contains(err.Error(), "404"):
			return nil
		default:
			return err
		}
	})
}

// userData reads the user data like a guest, with the headers that the proxy would add.
func (p *member) userData(server string) string {
	p.t.Helper()
	signature := hmac.New(sha256.New, []byte(p.cloud.MetadataSecret()))
	signature.Write([]byte(server))
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet,
		p.cloud.MetadataURL()+"/openstack/latest/user_data", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("X-Instance-ID", server)
	request.Header.Set("X-Tenant-ID", p.seeded.ProjectID)
	request.Header.Set("X-Instance-ID-Signature", hex.EncodeToString(signature.Sum(nil)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		p.t.Fatalf("read user data: %s, %v: %s", response.Status, err, body)
	}
	return string(body)
}

const patience = 5 * time.Minute

func eventually(t *testing.T, condition func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("condition not met after %v: %v", patience, err)
		case <-ticker.C:
		}
	}
}
