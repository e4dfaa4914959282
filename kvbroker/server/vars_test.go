package server

import (
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/pagesum"
)

const (
	roleSource = brokerv1.Role_ROLE_SOURCE
	roleDest   = brokerv1.Role_ROLE_DESTINATION
	roleSolo   = brokerv1.Role_ROLE_SOLO
)

var (
	noTime   time.Time
	testKeys = expandKeys()
)

func expandKeys() *pagesum.Keys {
	h := small.Hash()
	return pagesum.Expand(h[:], revision[:], small.Shape())
}

func attributeKey(s string) attribute.Key { return attribute.Key(s) }

func contains(s, part string) bool { return strings.Contains(s, part) }
