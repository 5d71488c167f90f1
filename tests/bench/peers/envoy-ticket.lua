-- SPDX-License-Identifier: Apache-2.0
-- The destination is in the gRPC request: Ticket.ticket(1) -> Action.fetch_partition(3) -> host(5) string, port(6) uint32.
-- Buffers the request only; sets the header that the ORIGINAL_DST cluster reads. host must be an IP literal.
local byte, sub = string.byte, string.sub
local function varint(s, i, e)
  local v, m = 0, 1
  while i <= e and m < 2^63 do
    local b = byte(s, i); i = i + 1
    if b < 128 then return v + b * m, i end
    v = v + (b - 128) * m; m = m * 128
  end
end
-- last occurrence of each field in s[i..e]: for length-delimited fields f -> {first,last}, for varints f -> number
local function fields(s, i, e)
  local t = {}
  while i <= e do
    local k; k, i = varint(s, i, e)
    if not k then return nil end
    local f, w = math.floor(k / 8), k % 8
    if w == 0 then local v; v, i = varint(s, i, e); if not v then return nil end; t[f] = v
    elseif w == 2 then local n; n, i = varint(s, i, e); if not n or i + n - 1 > e then return nil end; t[f] = {i, i + n - 1}; i = i + n
    elseif w == 1 then i = i + 8 elseif w == 5 then i = i + 4 else return nil end
  end
  return t
end
local function destination(s)
  if #s < 5 or byte(s, 1) ~= 0 then return nil end
  local a, b, c, d = byte(s, 2, 5)
  local e = 5 + ((a * 256 + b) * 256 + c) * 256 + d
  if e > #s then return nil end
  local t = fields(s, 6, e); t = t and t[1]; if type(t) ~= "table" then return nil end
  t = fields(s, t[1], t[2]); t = t and t[3]; if type(t) ~= "table" then return nil end
  t = fields(s, t[1], t[2]); if not t or type(t[5]) ~= "table" or type(t[6]) ~= "number" then return nil end
  if t[6] < 1 or t[6] > 65535 then return nil end
  return sub(s, t[5][1], t[5][2]) .. ":" .. string.format("%d", t[6])
end
function envoy_on_request(h)
  local b = h:body(true)
  local n = b:length()
  local d = n <= 65536 and destination(b:getBytes(0, n)) or nil
  if not d then
    h:respond({[":status"] = "200", ["content-type"] = "application/grpc", ["grpc-status"] = "3", ["grpc-message"] = "bad ticket"}, "")
    return
  end
  h:headers():replace("x-envoy-original-dst-host", d)
end
