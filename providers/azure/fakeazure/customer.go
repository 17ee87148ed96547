package fakeazure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Customer sends requests to an Azure without its SDK, like a user's script.
type Customer struct {
	Client *http.Client
	// URL is the address of Resource Manager and of the identity platform.
	URL                                       string
	Tenant, Subscription, Application, Secret string
}

// Call sends a request for a path of Resource Manager. It decodes the response into the value out, unless out is nil.
func (c Customer) Call(ctx context.Context, method, path string, body, out any) error {
	var token struct {
		AccessToken string `json:"access_token"`
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {c.Application}, "client_secret": {c.Secret},
		"scope": {"x/.default"}}
	if err := c.do(ctx, http.MethodPost, "/"+c.Tenant+"/oauth2/v2.0/token", "application/x-www-form-urlencoded", "",
		[]byte(form.Encode()), &token); err != nil {
		return err
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(ctx, method, path, "application/json", "Bearer "+token.AccessToken, raw, out)
}

func (c Customer) do(ctx context.Context, method, path, contentType, authorization string, body []byte, out any) error {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := c.Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s %s: %s %s", method, path, response.Status, text)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(out)
}

// Launch creates a network interface and a virtual machine, and returns the resource ID of the virtual machine. If
// Azure refuses the virtual machine, a second Launch with the same arguments repeats the request.
func (c Customer) Launch(ctx context.Context, group, name, subnet string, tags map[string]string) (string, error) {
	prefix := "/subscriptions/" + c.Subscription + "/resourceGroups/" + group + "/providers/"
	nic, vm := prefix+"Microsoft.Network/networkInterfaces/"+name, prefix+"Microsoft.Compute/virtualMachines/"+name
	err := c.Call(ctx, http.MethodPut, nic+"?api-version=2025-01-01", object{
		"location": "westeurope",
		"properties": object{"ipConfigurations": []any{object{"name": "a",
			"properties": object{"subnet": object{"id": subnet}}}}},
	}, nil)
	if err != nil {
		return "", err
	}
	return vm, c.Call(ctx, http.MethodPut, vm+"?api-version=2025-04-01", object{
		"location": "westeurope", "tags": tags,
		"properties": object{
			"hardwareProfile": object{"vmSize": "Standard_D2s_v5"},
			"storageProfile": object{
				"imageReference": object{"publisher": "Canonical", "offer": "0001-com-ubuntu-server-jammy",
					"sku": "22_04-lts-gen2", "version": "latest"},
				"osDisk": object{"createOption": "FromImage", "deleteOption": "Delete"},
			},
			"osProfile": object{"computerName": name, "adminUsername": "operator", "adminPassword": "Passw0rd!"},
			"networkProfile": object{"networkInterfaces": []any{object{"id": nic,
				"properties": object{"deleteOption": "Delete"}}}},
		},
	}, nil)
}
