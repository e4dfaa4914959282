package cli

import (
	neturl "net/url"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"leasehold.dev/protos/errs"
)

// target is where chat and models go: a mesh of this host, unless told otherwise.
type target struct {
	Dir string `help:"Folder of the mesh that up runs." placeholder:"DIR"`
	URL string `help:"Router's address, instead of a mesh of this host." placeholder:"URL"`
	Key string `help:"API key." env:"LEASEHOLD_API_KEY" placeholder:"KEY"`
}

// client talks to the target; url is the router's, without /v1.
func (t target) client() (client openai.Client, url string, err error) {
	url, key, err := t.find()
	if err != nil {
		return client, "", err
	}
	return newClient(url, key), url, nil
}

func newClient(url, key string, more ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(url + "/v1"), option.WithAPIKey(key)}, more...)...)
}

func (t target) find() (url, key string, err error) {
	if t.URL != "" {
		if t.Key == "" {
			return "", "", errs.New(errs.Invalid, "--url needs a key: --key or LEASEHOLD_API_KEY")
		}
		url, err := routerURL(t.URL)
		return url, t.Key, err
	}
	s, err := readState(orDefault(t.Dir))
	if t.Key != "" {
		s.Key = t.Key
	}
	return s.URL, s.Key, err
}

// routerURL takes what a person has at hand: the address with or without the /v1 of OpenAI's base URL.
func routerURL(raw string) (string, error) {
	u, err := neturl.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errs.New(errs.Invalid, "--url %s is not like http://127.0.0.1:8080", raw)
	}
	return strings.TrimSuffix(strings.TrimRight(raw, "/"), "/v1"), nil
}
